rule memory:
    input:
        suite.inputs_of_artifact,
    output:
        update(suite.memory("{dataset}/{method}/{variant}/{model}")),
    log:
        suite.log("memories/{dataset}/{method}/{variant}/{model}"),
    conda:
        "environment.yaml"
    threads: suite.threads
    resources:
        mem_mb=suite.mem_mb,
        gpu=suite.gpus,
        gpu_jobs=suite.gpu_jobs,
    shell:
        "python -m upkeep artifact {wildcards.dataset}/{wildcards.method}/{wildcards.variant}/{wildcards.model} > {log} 2>&1"


rule train:
    input:
        suite.inputs_of_artifact,
    output:
        update(suite.trained("{dataset}/{method}/{variant}/{model}")),
    log:
        suite.log("trained/{dataset}/{method}/{variant}/{model}"),
    conda:
        "environment.yaml"
    threads: suite.threads
    resources:
        mem_mb=suite.mem_mb,
        gpu=suite.gpus,
        gpu_jobs=suite.gpu_jobs,
    shell:
        "python -m upkeep artifact {wildcards.dataset}/{wildcards.method}/{wildcards.variant}/{wildcards.model} > {log} 2>&1"
