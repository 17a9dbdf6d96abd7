# A CPU image of the page and its API, from the wheel: python -m build && docker build -t loflexmdm .
# docker run --rm -p 127.0.0.1:7860:7860 loflexmdm
FROM python:3.12-slim
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN useradd --create-home --uid 1000 app
COPY dist/*.whl /tmp/
RUN pip install --no-cache-dir torch --index-url "$TORCH_INDEX" \
    && pip install --no-cache-dir "$(ls /tmp/loflexmdm-*.whl)[app]" \
    && rm /tmp/*.whl
USER app
WORKDIR /home/app
ENV OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
EXPOSE 7860
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:7860/ready')"]
ENTRYPOINT ["loflexmdm"]
CMD ["app", "--host", "0.0.0.0", "--device", "cpu"]
