"""A configuration of Fluent Bit that takes what jobs write from a yard, over OTLP."""

PORT = 4318

_FILE = """\
# Written by `yard export fluent-bit`; for Fluent Bit 3 and later: fluent-bit -c fluent-bit.yaml
# The yard sends what jobs write, with yard, cluster, tenant, user, job, attempt, node and stream as attributes.
# Tell it so in yard.yaml:
#   logs:
#     sinks:
#       - {{name: fluent-bit, otlp: {{url: "http://{host}:{port}"}}}}
# A line that Fluent Bit has not taken waits in the yard, and is sent again.
service:
  flush: 1
  log_level: info
  # What Fluent Bit has taken is on disk until the output has it.
  storage.path: /var/lib/fluent-bit/gpuyard
  storage.sync: full
pipeline:
  inputs:
    - name: opentelemetry
      listen: {host}
      port: {port}
      tag: gpuyard.jobs
      tag_from_uri: false
      storage.type: filesystem
  outputs:
    # Put yours in the place of this one: es, loki, kafka, s3, forward …
    - name: stdout
      match: gpuyard.jobs
      format: json_lines
"""


def fluent_bit_file(host: str = "127.0.0.1", port: int = PORT) -> str:
    """The file as YAML."""
    return _FILE.format(host=host, port=port)
