"""Which receivers there are."""

from gpuyard.shipping.contract import ELASTICSEARCH, LOKI, OTLP, Sink, SinkSpec
from gpuyard.shipping.elasticsearch import Elasticsearch
from gpuyard.shipping.loki import Loki
from gpuyard.shipping.otlp import Otlp
from gpuyard.shipping.syslog import Syslog


def make_sink(spec: SinkSpec) -> Sink:
    """The receiver that yard.yaml describes. Nothing is connected yet."""
    if spec.kind == LOKI:
        return Loki(spec)
    if spec.kind == ELASTICSEARCH:
        return Elasticsearch(spec)
    if spec.kind == OTLP:
        return Otlp(spec)
    return Syslog(spec)
