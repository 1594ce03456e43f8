# One image for every process: `drystone worker`, `api`, `agent`, `keeper`.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY requirements.txt requirements-dev.txt ./
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes -r requirements-dev.txt \
 && python -m venv /opt/drystone \
 && /opt/drystone/bin/pip install --no-cache-dir --require-hashes -r requirements.txt
COPY . .
RUN /opt/build/bin/python -m hatchling build -t wheel -d /tmp/wheel \
 && /opt/drystone/bin/pip install --no-cache-dir --no-deps /tmp/wheel/*.whl

FROM python:3.11-slim-bookworm
RUN useradd --system --uid 10001 --create-home drystone \
 && install -d -o drystone -g drystone /var/lib/drystone
COPY --from=build /opt/drystone /opt/drystone
ENV PATH=/opt/drystone/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    DRYSTONE_DATA_DIR=/var/lib/drystone
USER drystone
WORKDIR /var/lib/drystone
VOLUME /var/lib/drystone
ENTRYPOINT ["drystone"]
CMD ["--help"]
