# The study's environment with CUDA, from the same lock file as `make venv`.
#
#   docker build -t pfrnn --build-arg COMMIT=$(git describe --always --dirty --abbrev=40) .
#   docker run --gpus all -v $PWD/results:/opt/pfrnn/results -v $PWD/data:/opt/pfrnn/data \
#       pfrnn snakemake --cores 8 --resources gpu=1 --config tier=gpu
#
# CUDA's own libraries come with torch's wheels (13.0, constraints.txt); the base brings the parts
# that the container runtime looks for. The host brings the driver: 580 or later.
FROM nvidia/cuda:13.0.1-runtime-ubuntu24.04

# build-essential: Triton compiles its launcher with the C compiler; rsync: profile kubernetes.
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        build-essential git make python3 python3-dev python3-venv rsync \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/pfrnn

# What `make venv` reads, first: an edit of the package doesn't install everything again.
COPY Makefile README.md pyproject.toml requirements.in constraints.txt ./
COPY workflow/scripts/install workflow/scripts/install
COPY pfrnn/__init__.py pfrnn/__init__.py
RUN make venv PYTHON=python3

COPY . .

# Results name the commit; the image holds no git folder.
ARG COMMIT=unknown
ENV PFRNN_COMMIT=$COMMIT \
    PATH=/opt/pfrnn/.venv/bin:$PATH \
    OMP_NUM_THREADS=1 \
    MLFLOW_DISABLE_TELEMETRY=true
