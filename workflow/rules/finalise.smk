# The selected setting, retrained with paired repetitions and tested once.


rule finalise:
    input:
        selection=lambda w: selection_file(f"{w.dataset}/{w.cell}"),
        # The selected member is tested beside the finals.
        states=lambda w: block_files(f"{w.dataset}/{w.cell}", "best.pt"),
        card=lambda wildcards: prepared_card(wildcards.dataset),
        arrays=lambda wildcards: prepared_arrays(wildcards.dataset),
    output:
        run=f"{RESULTS}/final/{{dataset}}/{{cell}}/run.json",
        test=f"{RESULTS}/final/{{dataset}}/{{cell}}/test.csv",
        members=f"{RESULTS}/final/{{dataset}}/{{cell}}/members.csv",
        history=f"{RESULTS}/final/{{dataset}}/{{cell}}/history.csv",
        errors=f"{RESULTS}/final/{{dataset}}/{{cell}}/errors.npz",
        predictions=f"{RESULTS}/final/{{dataset}}/{{cell}}/predictions.npz",
        best=f"{RESULTS}/final/{{dataset}}/{{cell}}/best.pt",
    params:
        source=source_digest("pfrnn.study.train.final"),
    threads: CONFIG.execution.threads
    resources:
        gpu=1,
        mem_mb=lambda w, attempt: memory(f"final/{w.dataset}/{w.cell}", attempt),
        runtime=lambda w, attempt: minutes(f"final/{w.dataset}/{w.cell}", attempt),
    log:
        f"{RESULTS}/logs/final/{{dataset}}/{{cell}}.log",
    shell:
        "{LOGGED} {log} {PYTHON} -m pfrnn final"
        " final/{wildcards.dataset}/{wildcards.cell} {TIER_OPTIONS}"
