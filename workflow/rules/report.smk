# Tables, figures and claims in one page that opens from disk.


rule report:
    input:
        f"{RESULTS}/results.csv",
    output:
        f"{RESULTS}/report/index.html",
    params:
        source=source_digest("pfrnn.reporting.report"),
        settings=settings_digest(),
        missing=MISSING,
    log:
        f"{RESULTS}/logs/report.log",
    shell:
        "{LOGGED} {log} {PYTHON} -m pfrnn report --tier {TIER} {CONFIG_OPTIONS} --results {RESULTS}"
        " --out {RESULTS}/report {MISSING_OPTIONS}"
