"""A language model behind the chat completions API, served by llama.cpp. Not run without a GPU.

This file was checked by `longshore deploy --dry-run` alone: definition and image, not an answer of the model. The first
container downloads the weights into the volume; later ones find them there. Quantised weights fit a smaller GPU.
"""

from longshore import LLM, Image, Pod, ReadinessProbe, TokenPressureAutoscaler, Volume

MODEL = 'Qwen/Qwen2.5-7B-Instruct-GGUF:Q4_K_M'
#: Requests that the server computes side by side, and tokens that each of them may have.
PARALLEL = 8
CONTEXT_LENGTH = 8192

llm = Pod(
    name='llm-llamacpp',
    gpu=['L4', 'T4', 'A10G'],
    cpu=4,
    memory='16gi',
    image=Image(base_image='ghcr.io/ggml-org/llama.cpp:server-cuda'),
    volumes=[Volume(name='llama-cpp', mount_path='/models')],
    env={'LLAMA_CACHE': '/models'},
    entrypoint=[
        '/app/llama-server',
        *('--hf-repo', MODEL, '--alias', 'qwen2.5-7b-instruct'),
        *('--host', '0.0.0.0', '--port', '8080', '--metrics'),
        *('--n-gpu-layers', '99', '--parallel', str(PARALLEL), '--ctx-size', str(PARALLEL * CONTEXT_LENGTH)),
    ],
    ports=[8080],
    # 503 until the model is loaded. /v1/models answers sooner, and would make the container ready too early.
    readiness_probe=ReadinessProbe(path='/health'),
    serving=LLM(context_length=CONTEXT_LENGTH),
    autoscaler=TokenPressureAutoscaler(max_containers=2, tasks_per_container=PARALLEL),
    keep_warm_seconds=600,
)
