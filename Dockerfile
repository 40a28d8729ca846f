# One image, several roles by command: `python -m relay run` unless told otherwise, `python -m relay migrate` in the
# release phase. There is no ENTRYPOINT: the words that start a role are the same here, in the Procfile and on a laptop.

# The version of .python-version; patch releases and Debian's fixes come with each build.
FROM python:3.13-slim AS base
WORKDIR /app

# The locked packages. Wheels only, so that no stage needs a compiler; a file whose hash is not in the lock ends the
# build. pip's cache and the lock stay behind, and the environment has no pip of its own.
FROM base AS packages
COPY requirements.txt ./
RUN python -m venv --without-pip .venv \
 && python -m pip --python .venv install --require-hashes --only-binary :all: -r requirements.txt

FROM base
# Output appears when it is written, not when a buffer is full. No byte code is written at run time: it is all here,
# and the tree may be read-only.
ENV PATH=/app/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
# The packages are a layer of their own: a release that changes only code moves only code.
COPY --from=packages /app/.venv .venv/
COPY relay relay/
COPY consumers consumers/
COPY idempotency idempotency/
# Byte code that is never compared with its source, because builders may change times; and modes that let any user
# read, whatever the checkout had, because some platforms choose the user themselves.
RUN python -m compileall -q --invalidation-mode unchecked-hash relay consumers idempotency \
 && chmod -R a=rX relay consumers idempotency
# A number, so that a platform can tell that it is not root; it owns no file here.
USER 10001:10001
# The exec form: Python is process 1 and gets SIGTERM itself.
CMD ["python", "-m", "relay", "run"]
