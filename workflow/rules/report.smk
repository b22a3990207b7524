# Tables, figures and claims in one page that opens from disk.


rule report:
    input:
        f"{RESULTS}/results.csv",
        prepared_cards(),
        [prepared_arrays(name) for name in PREPARED],
    output:
        page=report(
            f"{RESULTS}/report/index.html", caption="../captions/page.rst", category="Report"
        ),
        cells=report(
            f"{RESULTS}/report/tables/cells.csv",
            caption="../captions/cells.rst",
            category="Tables",
        ),
        claims=report(
            f"{RESULTS}/report/tables/claims.csv",
            caption="../captions/claims.rst",
            category="Tables",
        ),
    params:
        source=source_digest(
            "pfrnn.study.report.report", *(f"pfrnn.study.data.sets.{name}" for name in PREPARED)
        ),
        settings=settings_digest(),
        missing=MISSING,
        stand_ins=STAND_INS,
        # When the recorded evidence changes, the report is made anew.
        recorded=evidence_digest(RECORDED) if RECORDED else None,
    log:
        f"{RESULTS}/logs/report.log",
    shell:
        "{LOGGED} {log} {PYTHON} -m pfrnn report --tier {TIER} {CONFIG_OPTIONS} --results {RESULTS}"
        " --out {RESULTS}/report {MISSING_OPTIONS} {STAND_IN_OPTIONS}"
        " {RECORDED_OPTIONS}"
