# MLflow is an index of the run records, rebuilt from them at any time.


# Created once, alone: parallel first connections to a fresh SQLite store break it.
# update(): an existing store is brought up to date, never deleted.
rule mlflow_store:
    output:
        update("mlflow.db"),
    log:
        "logs/mlflow-store.log",
    shell:
        "{LOGGED} {log} {PYTHON} -m pfrnn mlflow-import --create-store"


rule mlflow_import:
    input:
        store=mlflow_store(),
        blocks=[f"{RESULTS}/{block}/run.json" for block in BLOCKS],
        finals=final_files("run.json", "test.csv"),
    output:
        f"{RESULTS}/mlflow.json",
    params:
        source=source_digest("pfrnn.study.track.importer"),
    log:
        f"{RESULTS}/logs/mlflow-import.log",
    shell:
        "{LOGGED} {log} {PYTHON} -m pfrnn mlflow-import --results {RESULTS} --out {output}"
        " {CONFIG_OPTIONS} --or-later"
