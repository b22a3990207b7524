# Tables, figures and claims in one page that opens from disk.


rule report:
    input:
        f"{RESULTS}/results.csv",
        [f"{folder}/card.json" for folder in PREPARED.values()],
        [f"{folder}/arrays.npz" for folder in PREPARED.values()],
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
        # Every parameter but how jobs run.
        settings=digest_of(PLAN.config.model_dump(mode="json", exclude={"execution"})),
        missing=SCOPE.missing,
        stand_ins=SCOPE.stand_ins,
        recorded=evidence_digest(SCOPE.recorded) if SCOPE.recorded else None,
    log:
        f"{RESULTS}/logs/report.log",
    shell:
        "{LOGGED} {log} {PYTHON} -m pfrnn report {TIER_OPTIONS} --results {RESULTS}"
        " --out {RESULTS}/report {MISSING_OPTIONS} {STAND_IN_OPTIONS} {RECORDED_OPTION}"
