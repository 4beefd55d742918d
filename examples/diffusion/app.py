"""Pictures from texts with Stable Diffusion XL Turbo; the answer is a signed address. Not run without a GPU.

This file was checked by `longshore deploy --dry-run` alone: definition and build plan, not a picture.
"""

from __future__ import annotations

from typing import Any

from longshore import Context, Image, Output, Volume, endpoint

MODEL = 'stabilityai/sdxl-turbo'

image = Image(
    python_version='python3.12',
    python_packages=['torch==2.15.0', 'diffusers==0.42.1', 'transformers==5.24.0', 'accelerate==1.15.0', 'safetensors'],
    env_vars={'HF_HOME': '/models'},
)


class Painter:
    def __init__(self) -> None:
        import torch  # type: ignore
        from diffusers import AutoPipelineForText2Image  # type: ignore

        pipeline = AutoPipelineForText2Image.from_pretrained(MODEL, torch_dtype=torch.float16, variant='fp16')
        self.pipeline = pipeline.to('cuda')
        self.generator = torch.Generator('cuda')

    def picture(self, prompt: str, seed: int) -> Any:
        generator = self.generator.manual_seed(seed)
        return self.pipeline(prompt, num_inference_steps=1, guidance_scale=0.0, generator=generator).images[0]


def load() -> Painter:
    return Painter()


@endpoint(
    name='diffusion',
    gpu=['L40S', 'A10G', 'H100'],
    cpu=4,
    memory='24gi',
    image=image,
    volumes=[Volume(name='hugging-face', mount_path='/models')],
    on_start=load,
    keep_warm_seconds=300,
    timeout=120,
)
def draw(context: Context, prompt: str, seed: int = 0) -> dict[str, str]:
    painter: Painter = context.on_start_value
    painter.picture(prompt, seed).save('picture.png')
    return {'url': Output(path='picture.png').save().public_url(expires=3600)}
