# capi on Debian slim, without root, with all kernels compiled ahead of time.
#
#   docker build -t capi .
#   docker run --rm -v "$PWD:/data" capi init visits.csv
#
# The machine code fits the type of processor that builds the image: build where you run, or let the first fit compile (15 s).

FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13-slim
RUN useradd --create-home --uid 1000 capi && mkdir -p /opt/capi-cache /data && chown capi /opt/capi-cache /data
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl && rm -rf /wheels
USER capi
ENV NUMBA_CACHE_DIR=/opt/capi-cache MPLCONFIGDIR=/tmp/matplotlib OPENBLAS_NUM_THREADS=1
RUN capi warm-up --quiet
WORKDIR /data
ENTRYPOINT ["capi"]
CMD ["--help"]
