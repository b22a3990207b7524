# All finals in one tidy table. A record whose parameters aren't the configuration's is refused.


rule aggregate:
    input:
        final_files("run.json", "test.csv", "history.csv"),
    output:
        report(f"{RESULTS}/results.csv", caption="../captions/results.rst", category="Tables"),
        # What `dvc metrics diff` and `dvc plots diff` compare.
        f"{RESULTS}/metrics.json",
        [f"{RESULTS}/curves/{name}.csv" for name in PREPARED],
    params:
        source=source_digest("pfrnn.study.evaluate.aggregate", "pfrnn.study.evaluate.compared"),
        missing=list(SCOPE.missing),
    log:
        f"{RESULTS}/logs/aggregate.log",
    shell:
        "{LOGGED} {log} {PYTHON} -m pfrnn aggregate {TIER_OPTIONS} {MISSING_OPTIONS}"
        " {RECORDED_OPTION}"
