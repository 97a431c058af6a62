# One rule a judge: a model that says which responses of the cells that it judges are right (src/upkeep/judging/).
# What was judged before is reused, so it stays until something takes its place.
for judge in suite.judges:

    rule:
        name:
            f"judge {judge}"
        input:
            suite.inputs_of_judge(judge),
        output:
            update(suite.judging(judge)),
        log:
            suite.log(f"judged/{judge}"),
        conda:
            "environment.yaml"
        threads: suite.needs_of_judge(judge).threads
        resources:
            **suite.resources_of_judge(judge),
        params:
            judge=judge,
        shell:
            "python -m upkeep judge --only {params.judge} > {log} 2>&1"
