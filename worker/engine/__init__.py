"""The engine process: continuous batching with OpenVINO GenAI, or its simulation."""
