# hloom with JAX and MPI: docker build -t hloom . && docker run --rm -v "$PWD:/work" hloom run module.hlo --random 0
FROM python:3.13-slim

COPY pyproject.toml README.md LICENSE MANIFEST.in /hloom/
COPY src /hloom/src
RUN pip install --no-cache-dir "/hloom[jax,mpi,plot,build]"

# Compiled programs are cached between containers if /cache is a volume.
ENV HLOOM_CACHE_DIR=/cache
RUN useradd --create-home hloom && mkdir /cache /work && chown hloom /cache /work
USER hloom
WORKDIR /work
ENTRYPOINT ["hloom"]
CMD ["--help"]
