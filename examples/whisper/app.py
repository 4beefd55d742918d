"""Speech to text with Whisper, as a task queue: put a recording's address, read the text. Not run without a GPU.

This file was checked by `longshore deploy --dry-run` alone: definition and build plan, not a transcript.
"""

from __future__ import annotations

from typing import Any

from longshore import Context, Image, QueueDepthAutoscaler, Volume, task_queue

MODEL = 'large-v3'

image = Image(python_version='python3.12', python_packages=['faster-whisper==1.2.1', 'nvidia-cublas-cu12', 'nvidia-cudnn-cu12'])
volume = Volume(name='whisper', mount_path='/models')


def load() -> Any:
    from faster_whisper import WhisperModel  # type: ignore

    return WhisperModel(MODEL, device='cuda', compute_type='float16', download_root='/models')


@task_queue(
    name='whisper',
    gpu=['L4', 'A10G', 'T4'],
    cpu=4,
    memory='16gi',
    image=image,
    volumes=[volume],
    on_start=load,
    keep_warm_seconds=120,
    timeout=3600,
    autoscaler=QueueDepthAutoscaler(max_containers=4, tasks_per_container=10),
)
def transcribe(context: Context, url: str, language: str = '') -> dict[str, Any]:
    import tempfile
    import urllib.request

    with tempfile.NamedTemporaryFile() as recording:
        with urllib.request.urlopen(url, timeout=60) as source:
            while data := source.read(1 << 20):
                recording.write(data)
        recording.flush()
        segments, info = context.on_start_value.transcribe(recording.name, language=language or None, vad_filter=True)
        lines = [{'start': round(one.start, 2), 'end': round(one.end, 2), 'text': one.text.strip()} for one in segments]
    return {'language': info.language, 'seconds': round(info.duration, 1), 'lines': lines}
