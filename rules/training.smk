# A model that a training method makes.
rule train:
    input:
        suite.inputs_of_training,
    output:
        update(suite.trained("{dataset}/{method}/{variant}/{model}")),
    log:
        suite.log("trained/{dataset}/{method}/{variant}/{model}"),
    conda:
        "environment.yaml"
    threads: lambda wildcards: suite.needs_of_training(wildcards).threads
    resources:
        **suite.resources_of_training(),
    shell:
        "python -m upkeep model train {wildcards.dataset}/{wildcards.method}/{wildcards.variant}/{wildcards.model} > {log} 2>&1"
