# Raw files under the publisher's names, checked by digest: from the mirror or the publisher.


rule fetch:
    output:
        "data/raw/{dataset}/fetch.json",
    params:
        sources=lambda wildcards: sources_digest(wildcards.dataset),
    log:
        "logs/fetch/{dataset}.log",
    shell:
        "{LOGGED} {log} {PYTHON} -m pfrnn fetch {wildcards.dataset} {PARAMS_OPTION}"
