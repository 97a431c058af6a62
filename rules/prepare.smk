wildcard_constraints:
    dataset=suite.NAME,
    method=suite.NAME,
    variant=suite.NAME,
    model=suite.NAME,
    engine="[a-z-]+",


rule prepared:
    input:
        suite.prepared,


rule dataset:
    input:
        suite.plan_of_dataset,
    output:
        suite.dataset("{dataset}"),
    log:
        suite.log("datasets/{dataset}"),
    conda:
        "environment.yaml"
    shell:
        "python -m upkeep dataset build {wildcards.dataset} > {log} 2>&1"


# Few builds at a time: those on the same packages wait for each other, and then there is little left to do.
rule engine:
    input:
        suite.plan_of_engine,
    output:
        suite.image(None, "{engine}"),
    log:
        suite.log("images/{engine}"),
    conda:
        "environment.yaml"
    resources:
        builds=1,
    shell:
        "python -m upkeep image build {wildcards.engine} > {log} 2>&1"


rule image:
    input:
        suite.plan_of_image,
    output:
        suite.image("{method}", "{engine}"),
    log:
        suite.log("images/{method}.{engine}"),
    conda:
        "environment.yaml"
    resources:
        builds=1,
    shell:
        "python -m upkeep image build {wildcards.method} --engine {wildcards.engine} > {log} 2>&1"


rule weights:
    input:
        suite.plan_of_weights,
    output:
        suite.weights("{model}"),
    log:
        suite.log("models/{model}"),
    conda:
        "environment.yaml"
    shell:
        "python -m upkeep model fetch {wildcards.model} > {log} 2>&1"
