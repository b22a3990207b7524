# One job a block: all points of the training grid for one model, side by side.
# An interrupted job leaves checkpoint.pt beside its outputs and goes on from there.


rule train:
    input:
        card=lambda wildcards: prepared_card(wildcards.dataset),
        arrays=lambda wildcards: prepared_arrays(wildcards.dataset),
    output:
        run=f"{RESULTS}/search/{{dataset}}/{{variant}}/{{block}}/run.json",
        members=f"{RESULTS}/search/{{dataset}}/{{variant}}/{{block}}/members.csv",
        history=f"{RESULTS}/search/{{dataset}}/{{variant}}/{{block}}/history.csv",
        best=f"{RESULTS}/search/{{dataset}}/{{variant}}/{{block}}/best.pt",
    params:
        source=source_digest("pfrnn.study.train.block"),
    threads: CONFIG.execution.threads
    resources:
        gpu=1,
        mem_mb=lambda w, attempt: memory(f"search/{w.dataset}/{w.variant}/{w.block}", attempt),
        runtime=lambda w, attempt: minutes(f"search/{w.dataset}/{w.variant}/{w.block}", attempt),
    log:
        f"{RESULTS}/logs/search/{{dataset}}/{{variant}}/{{block}}.log",
    shell:
        "{LOGGED} {log} {PYTHON} -m pfrnn train"
        " search/{wildcards.dataset}/{wildcards.variant}/{wildcards.block} {TIER_OPTIONS}"
