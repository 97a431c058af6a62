# `update`: what is published stays until something takes its place, and is reused where it is still right.
rule cell:
    input:
        suite.inputs_of_cell,
    output:
        predictions=update(
            suite.cell("{dataset}/{method}/{variant}/{model}", "predictions.jsonl")
        ),
        measured=update(
            suite.cell("{dataset}/{method}/{variant}/{model}", "measured.parquet")
        ),
        manifest=update(
            suite.cell("{dataset}/{method}/{variant}/{model}", "manifest.json")
        ),
    log:
        suite.log("cells/{dataset}/{method}/{variant}/{model}"),
    conda:
        "environment.yaml"
    threads: suite.threads
    resources:
        mem_mb=suite.mem_mb,
        gpu=suite.gpus,
        gpu_jobs=suite.gpu_jobs,
    shell:
        "python -m upkeep cell {wildcards.dataset}/{wildcards.method}/{wildcards.variant}/{wildcards.model} > {log} 2>&1"
