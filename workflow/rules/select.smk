# The member with the best validation score among a cell's blocks. Sees no test score.


rule select:
    input:
        lambda wildcards: block_files(wildcards.selection, "run.json", "members.csv"),
    output:
        f"{RESULTS}/selection/{{selection}}.json",
    params:
        source=source_digest("pfrnn.study.evaluate.selection"),
    log:
        f"{RESULTS}/logs/selection/{{selection}}.log",
    shell:
        "{LOGGED} {log} {PYTHON} -m pfrnn select"
        " selection/{wildcards.selection}.json {TIER_OPTIONS}"
