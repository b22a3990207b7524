# One job a block: all points of the training grid for one model, side by side.
# An interrupted job leaves checkpoint.pt beside its outputs and goes on from there.


rule train:
    input:
        lambda wildcards: multiext(f"{PREPARED[wildcards.dataset]}/", "card.json", "arrays.npz"),
    output:
        # Snakemake's own note: a job that failed has none, whatever update() restored.
        touch(f"{RESULTS}/search/{{dataset}}/{{variant}}/{{block}}/finished"),
        **job_outputs("search/{dataset}/{variant}/{block}", "search"),
    params:
        source=source_digest("pfrnn.study.train.block"),
    threads: PLAN.config.execution.threads
    resources:
        gpu=1,
        mem_mb=lambda w, attempt: needs(f"search/{w.dataset}/{w.variant}/{w.block}", attempt).mem_mb,
        runtime=lambda w, attempt: needs(f"search/{w.dataset}/{w.variant}/{w.block}", attempt).minutes,
    log:
        f"{RESULTS}/logs/search/{{dataset}}/{{variant}}/{{block}}.log",
    shell:
        "{LOGGED} {log} {PYTHON} -m pfrnn train"
        " search/{wildcards.dataset}/{wildcards.variant}/{wildcards.block} {TIER_OPTIONS}"
