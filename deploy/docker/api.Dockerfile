# One API replica, without a model and without OpenVINO. Build from the repository's root:
#   docker build -f deploy/docker/api.Dockerfile -t vinoqueue-api .
# --build-arg EXTRAS=otel,s3 adds the packages for tracing and for files in S3.
ARG PYTHON=python:3.13-slim

FROM ${PYTHON} AS build
ARG EXTRAS=""
WORKDIR /build
RUN python -m venv --without-pip /opt/vinoqueue
COPY requirements/build.txt requirements/api.txt requirements/otel.txt requirements/s3.txt requirements/
RUN pip install --no-cache-dir --no-deps --require-hashes --only-binary=:all: -r requirements/build.txt \
 && pip --python /opt/vinoqueue/bin/python install --no-cache-dir --no-deps --require-hashes --only-binary=:all: -r requirements/api.txt
RUN for extra in $(echo "$EXTRAS" | tr , ' '); do pip --python /opt/vinoqueue/bin/python install --no-cache-dir --no-deps --require-hashes \
    --only-binary=:all: -r requirements/$extra.txt || exit 1; done
COPY pyproject.toml README.md ./
COPY shared shared
COPY api api
COPY cli cli
RUN pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
 && pip --python /opt/vinoqueue/bin/python install --no-cache-dir --no-deps dist/*.whl

FROM ${PYTHON}
COPY --from=build /opt/vinoqueue /opt/vinoqueue
RUN install -d -o 10001 -g 10001 /files
ENV PATH=/opt/vinoqueue/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1 VINOQUEUE_HOST=0.0.0.0 VINOQUEUE_FILES_DIR=/files
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["vinoqueue", "health", "api"]
ENTRYPOINT ["vinoqueue"]
CMD ["api"]
