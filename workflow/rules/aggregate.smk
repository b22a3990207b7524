# All finals in one tidy table. A record whose parameters aren't the configuration's is refused.


rule aggregate:
    input:
        final_files("run.json", "test.csv"),
    output:
        f"{RESULTS}/results.csv",
    params:
        source=source_digest("pfrnn.evaluation.aggregate"),
        missing=MISSING,
    log:
        f"{RESULTS}/logs/aggregate.log",
    shell:
        "{LOGGED} {log} {PYTHON} -m pfrnn aggregate {TIER_OPTIONS} {MISSING_OPTIONS}"
