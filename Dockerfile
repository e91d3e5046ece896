# One image for Chronicle, two targets: `server` (the store and its REST interface) and `spark` (the same
# plus a Java runtime and PySpark; driver, master and workers all run it, so that interpreter and package
# are the same everywhere). Build with `docker compose build`.
#
# bookworm: the last Debian release whose archive has OpenJDK 17.
FROM python:3.11-slim-bookworm AS base
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1
RUN groupadd --gid 10001 chronicle \
 && useradd --uid 10001 --gid 10001 --create-home chronicle \
 && mkdir -p /data /quarantine \
 && chown -R chronicle:chronicle /data /quarantine
WORKDIR /src

# The wheel carries the machine code of the kernels: the images need no compiler.
FROM base AS wheel
COPY . /src
RUN CHRONICLE_KERNELS=_kernels,_kernels_v3 pip wheel --no-deps --wheel-dir /wheels .

FROM base AS server
COPY --from=wheel /wheels /wheels
RUN pip install "$(ls /wheels/*.whl)[server,cli,flight]"
USER 10001:10001
WORKDIR /data
# HTTP; Flight SQL, where CHRONICLE_FLIGHT_PORT=8001 opens it
EXPOSE 8000 8001
CMD ["chronicle", "serve", "--store", "/data", "--host", "0.0.0.0", "--port", "8000"]

FROM base AS spark
RUN apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps tini \
 && rm -rf /var/lib/apt/lists/*
COPY --from=wheel /wheels /wheels
RUN pip install "$(ls /wheels/*.whl)[cli,spark]" \
 && ln -s "$(python -c 'import pyspark, os; print(os.path.dirname(pyspark.__file__))')" /opt/spark
ENV SPARK_HOME=/opt/spark \
    PATH=/opt/spark/bin:$PATH \
    PYSPARK_PYTHON=/usr/local/bin/python \
    PYSPARK_DRIVER_PYTHON=/usr/local/bin/python
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["/usr/bin/tini", "--"]
