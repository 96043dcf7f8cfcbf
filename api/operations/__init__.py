"""Operations: probes, metrics, and the OpenAPI document."""
