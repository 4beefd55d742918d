"""A language model behind the chat completions API, served by vLLM. Not run without a GPU.

This file was checked by `longshore deploy --dry-run` alone: definition and build plan, not an answer of the model. The
first container downloads the weights into the volume; later ones find them there.
"""

from longshore import Image, Pod, QueueDepthAutoscaler, ReadinessProbe, Volume

MODEL = 'Qwen/Qwen2.5-7B-Instruct'

llm = Pod(
    name='llm',
    gpu=['H100', 'A100-80', 'L40S'],
    cpu=8,
    memory='32gi',
    image=Image(python_version='python3.12', python_packages=['vllm==0.33.0']),
    volumes=[Volume(name='hugging-face', mount_path='/models')],
    env={'HF_HOME': '/models'},
    entrypoint=['vllm', 'serve', MODEL, '--port', '8000', '--max-model-len', '16384'],
    ports=[8000],
    # The model is loaded before this path answers.
    readiness_probe=ReadinessProbe(path='/health'),
    autoscaler=QueueDepthAutoscaler(max_containers=2, tasks_per_container=64),
    keep_warm_seconds=600,
)
