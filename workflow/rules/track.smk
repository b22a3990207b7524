# MLflow is an index of the run records, rebuilt from them at any time.


rule mlflow_import:
    input:
        [f"{RESULTS}/{block.id}/run.json" for block in PLAN.blocks],
        final_files("run.json", "test.csv"),
    output:
        f"{RESULTS}/mlflow.json",
    params:
        source=source_digest("pfrnn.study.track.importer"),
    log:
        f"{RESULTS}/logs/mlflow-import.log",
    shell:
        "{LOGGED} {log} {PYTHON} -m pfrnn mlflow-import --results {RESULTS} --out {output}"
        " {PARAMS_OPTION} --or-later"
