"""A language model behind the chat completions API, served by vLLM. Not run without a GPU.

This file was checked by `longshore deploy --dry-run` alone: definition and build plan, not an answer of the model. The
first container downloads the weights into the volume; later ones find them there.
"""

from longshore import LLM, Image, Pod, TokenPressureAutoscaler, Volume

MODEL = 'Qwen/Qwen2.5-7B-Instruct'
#: Tokens of prompt and answer that a call may have.
CONTEXT_LENGTH = 16384

llm = Pod(
    name='llm',
    gpu=['H100', 'A100-80', 'L40S'],
    cpu=8,
    memory='32gi',
    image=Image(python_version='python3.12', python_packages=['vllm==0.33.0']),
    volumes=[Volume(name='hugging-face', mount_path='/models')],
    env={'HF_HOME': '/models'},
    entrypoint=['vllm', 'serve', MODEL, '--port', '8000', '--max-model-len', str(CONTEXT_LENGTH)],
    ports=[8000],
    # The server listens once the model is loaded. The cache of the smallest card holds eight whole calls or more; vLLM
    # prints its size at the start.
    serving=LLM(context_length=CONTEXT_LENGTH, cache_tokens=8 * CONTEXT_LENGTH),
    autoscaler=TokenPressureAutoscaler(max_containers=2, tasks_per_container=64),
    keep_warm_seconds=600,
)
