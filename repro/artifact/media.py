"""The media types and annotation keys of an artifact."""

from __future__ import annotations

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
TITLE = "org.opencontainers.image.title"

ARTIFACT_TYPE = "application/vnd.repro.artifact.v1+json"
CONFIG_TYPE = "application/vnd.repro.config.v1+json"
SOURCE_TYPE = "application/vnd.repro.source.v1+onnx"
GRAPH_TEXT_TYPE = "application/vnd.repro.graph.v1+text"
KERNEL_TYPE = "application/vnd.repro.kernel.v1+text"
PROGRAM_TYPE = "application/vnd.repro.program.v1+text"
TENSOR_TYPE = "application/vnd.repro.tensor.v1"
TUNING_TYPE = "application/vnd.repro.tuning.v1+json"
