# Raw files to arrays and a card. The folder's name holds the digest of protocol and seed.


rule prepare:
    input:
        # A simulated set has no raw files.
        lambda w: f"data/raw/{w.dataset}/fetch.json" if dataset(w.dataset).card.files else [],
    output:
        card="data/prepared/{dataset}-{protocol}/card.json",
        arrays="data/prepared/{dataset}-{protocol}/arrays.npz",
    params:
        source=lambda wildcards: source_digest(
            "pfrnn.study.data.prepare", f"pfrnn.study.data.sets.{wildcards.dataset}"
        ),
    log:
        "logs/prepare/{dataset}-{protocol}.log",
    shell:
        "{LOGGED} {log} {PYTHON} -m pfrnn prepare {wildcards.dataset} {TIER_OPTIONS}"
        " --out data/prepared/{wildcards.dataset}-{wildcards.protocol}"
