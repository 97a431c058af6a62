# One rule a batch: cells of one model, which share a job and a loaded engine (src/upkeep/batches.py).
# `update`: what is published stays until something takes its place, and is reused where it is still right.
for batch in suite.batches:

    rule:
        name:
            f"batch {batch.name}"
        input:
            suite.inputs_of_batch(batch),
        output:
            update(suite.files_of_batch(batch)),
        log:
            suite.log(f"batches/{batch.name}"),
        # In the order of the suite.
        priority: -suite.batches.index(batch)
        conda:
            "environment.yaml"
        threads: suite.needs(batch.cells).threads
        resources:
            **suite.resources_of_batch(batch),
        params:
            batch=batch.name,
        shell:
            "python -m upkeep batch {params.batch} > {log} 2>&1"
