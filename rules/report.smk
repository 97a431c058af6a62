# What was scored before is reused, so it stays until something takes its place.
rule score:
    input:
        suite.answers,
        suite.judgements,
        suite.plan_of_scores,
    output:
        update(suite.scores),
    log:
        suite.log("score"),
    conda:
        "environment.yaml"
    shell:
        "python -m upkeep score > {log} 2>&1"


rule report:
    input:
        suite.scores,
        suite.plan_of_report,
    output:
        report(suite.report, category="Report", caption="../docs/report.rst"),
    log:
        suite.log("report"),
    conda:
        "environment.yaml"
    shell:
        "python -m upkeep report > {log} 2>&1"
