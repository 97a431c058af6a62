"""Every baseline of five papers: datasets, images and models, then cells, scores, and the report.

snakemake --profile profiles/local all                        the suite of config/config.yaml
snakemake --profile profiles/local all --config suite=oaks    another one
snakemake --profile profiles/local results/cells/DATASET/METHOD/VARIANT/MODEL/predictions.jsonl
"""

from upkeep.workflow import Workflow

suite = Workflow(workflow.basedir, config)


include: "rules/prepare.smk"
include: "rules/training.smk"
include: "rules/cells.smk"
include: "rules/judging.smk"
include: "rules/report.smk"


onstart:
    # With its limit of jobs a second Snakemake 9 looks for work every second, once more for each job that has ended.
    workflow.scheduler.job_rate_limiter = None
    suite.begin()


# These are light, or need a network: they are made where Snakemake runs.
localrules:
    prepared,
    dataset,
    engine,
    image,
    weights,
    score,
    report,


rule all:
    default_target: True
    input:
        suite.wanted,
