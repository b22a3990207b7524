# The selected setting, retrained with paired repetitions and tested once.


rule finalise:
    input:
        f"{RESULTS}/selection/{{dataset}}/{{cell}}.json",
        # The selected member is tested beside the finals.
        lambda wildcards: block_files(f"{wildcards.dataset}/{wildcards.cell}", "best.pt"),
        lambda wildcards: multiext(f"{PREPARED[wildcards.dataset]}/", "card.json", "arrays.npz"),
    output:
        # Snakemake's own note: a job that failed has none, whatever update() restored.
        touch(f"{RESULTS}/final/{{dataset}}/{{cell}}/finished"),
        **job_outputs("final/{dataset}/{cell}", "final"),
    params:
        source=source_digest("pfrnn.study.train.final"),
    threads: PLAN.config.execution.threads
    resources:
        gpu=1,
        mem_mb=lambda w, attempt: needs(f"final/{w.dataset}/{w.cell}", attempt).mem_mb,
        runtime=lambda w, attempt: needs(f"final/{w.dataset}/{w.cell}", attempt).minutes,
    log:
        f"{RESULTS}/logs/final/{{dataset}}/{{cell}}.log",
    shell:
        "{LOGGED} {log} {PYTHON} -m pfrnn final"
        " final/{wildcards.dataset}/{wildcards.cell} {TIER_OPTIONS}"
