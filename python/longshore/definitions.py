"""Values that an app file passes to decorators: the image, the autoscaler, volumes. The decorators are in `handlers`.

Bad values raise DefinitionError and name the parameter.
"""

from __future__ import annotations

import os
import re
from enum import Enum
from shlex import quote
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from .checks import DefinitionError, flag, flow_key, gpu_names, head_start, instance, label_key, label_values, one_of, pace, sequence, text, texts, variables, whole
from .requirements import requirements

_PYTHON_VERSION = re.compile(r'(python|micromamba)?3(\.([0-9]+))?')
#: Drivers of docs/volumes.md.
_VOLUME_DRIVERS = ('local', 'cache', 'shared', 'nfs', 's3')
_APT = (
    'apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends %s && rm -rf /var/lib/apt/lists/*'
)
_CREDENTIALS = 'credentials are kept once for a workspace, not in an app file: `longshore registry set`'
_FROM = re.compile(r'[ \t]*FROM[ \t]+\S.*?(?:[ \t]+AS[ \t]+(\S+))?[ \t]*\r?\n?$', re.IGNORECASE)
_IMAGE_ID = re.compile(r'[0-9a-f]{32}')
_VOLUME_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]{0,62}')


class PythonVersion(str, Enum):
    """Names for `Image(python_version=…)`."""

    Python3 = 'python3'
    Python38 = 'python3.8'
    Python39 = 'python3.9'
    Python310 = 'python3.10'
    Python311 = 'python3.11'
    Python312 = 'python3.12'
    Python313 = 'python3.13'
    Python314 = 'python3.14'

    def __str__(self) -> str:
        return str(self.value)


class GpuType(str, Enum):
    """Names for `gpu=…`. Any other text that the scheduler knows will do as well."""

    NoGPU = ''
    Any = 'any'
    T4 = 'T4'
    L4 = 'L4'
    L40 = 'L40'
    L40S = 'L40S'
    A10 = 'A10'
    A10G = 'A10G'
    A16 = 'A16'
    A30 = 'A30'
    A40 = 'A40'
    A100 = 'A100'
    A100_40 = 'A100-40'
    A100_80 = 'A100-80'
    A4000 = 'A4000'
    A5000 = 'A5000'
    A6000 = 'A6000'
    H100 = 'H100'
    H200 = 'H200'
    GH200 = 'GH200'
    B200 = 'B200'
    B300 = 'B300'
    V100 = 'V100'
    V100_32 = 'V100-32'
    RTX4000Ada = 'RTX4000Ada'
    RTX4090 = 'RTX4090'
    RTX5090 = 'RTX5090'
    RTX6000 = 'RTX6000'
    RTX6000Ada = 'RTX6000Ada'
    RTXPro6000 = 'RTXPro6000'
    GAUDI2 = 'GAUDI2'

    def __str__(self) -> str:
        return str(self.value)


class Image:
    """
    The container image: one for a Python version, or `base_image`. Packages, commands, variables or a Dockerfile make
    `longshore deploy` build an image, once for each definition. Variables and Debian packages come first, then
    packages, then commands; what is added later comes behind, in its order. The methods change this image and return
    it; a handler has the image as it was when the handler was defined.

        image = Image(python_packages=['numpy==2.1.0'], env_vars={'HF_HOME': '/models'}).apt_install('ffmpeg')

    python_version: `'3.12'`, `'python3.12'` or `PythonVersion.Python312`, from 3.8 to 3.14.
    python_packages: packages as `pip install` takes them, a list, or the path of a requirements file.
    commands: shell commands.
    base_image: an image of a registry that has a Python of 3.8 or newer, in place of the one for a version.
    base_image_creds: refused; `longshore registry set` keeps credentials.
    env_vars: variables of the image, `{'NAME': 'value'}` or `['NAME=value']`.
    image_id: an image that was built before, by its id in `longshore image list`.
    system_packages: Debian packages; the image must have `apt-get`, as the base images do.

    Raises DefinitionError, which names the parameter.
    """

    def __init__(
        self,
        python_version: str = 'python3',
        python_packages: Union[Sequence[str], str] = (),
        commands: Sequence[str] = (),
        base_image: Optional[str] = '',
        base_image_creds: Optional[Sequence[str]] = None,
        env_vars: Union[Mapping[str, str], Sequence[str], str, None] = None,
        image_id: Optional[str] = None,
        system_packages: Sequence[str] = (),
    ) -> None:
        if base_image_creds:
            raise DefinitionError('base_image_creds: %s' % _CREDENTIALS)
        self.python_version = _python_version(python_version)
        self.python_packages = _packages(python_packages)
        self.commands = texts('commands', commands)
        self.base_image = _built_image(image_id) if image_id else text('base_image', base_image or '')
        self.env_vars = _env_vars(env_vars)
        self.system_packages = texts('system_packages', system_packages)
        self.dockerfile = ''
        self.dockerfile_path = ''
        self.context_dir = ''
        self.gpu = ''
        self.added: List[Dict[str, Any]] = []
        self._layers = 0

    @classmethod
    def from_dockerfile(
        cls,
        path: str,
        context_dir: Optional[str] = None,
        target: Optional[str] = None,
        build_args: Optional[Mapping[str, str]] = None,
    ) -> 'Image':
        """
        An image of a Dockerfile. `context_dir` has the files that it copies; the Dockerfile's directory by default.
        `target`: the stage with which it ends. `build_args`: values of its ARG instructions.
        """
        image = cls()
        if os.environ.get('CONTAINER_ID'):
            return image
        try:
            with open(text('path', path, empty=False), encoding='utf-8') as file:
                image.dockerfile = _with_arguments(_up_to(file.read(), target or ''), build_args or {})
        except OSError as error:
            raise DefinitionError('path: cannot read %s: %s' % (path, error.strerror)) from None
        image.dockerfile_path = os.path.abspath(path)
        image.context_dir = os.path.abspath(context_dir or os.path.dirname(os.path.abspath(path)))
        if not os.path.isdir(image.context_dir):
            raise DefinitionError('context_dir: %s is not a directory' % image.context_dir)
        return image

    @classmethod
    def from_registry(cls, image_uri: str, credentials: Optional[Sequence[str]] = None) -> 'Image':
        """An image of a registry, whose credentials the workspace has (`longshore registry set`)."""
        if credentials:
            raise DefinitionError('credentials: %s' % _CREDENTIALS)
        return cls(base_image=text('image_uri', image_uri, empty=False))

    @classmethod
    def from_id(cls, image_id: str) -> 'Image':
        """An image that was built before, as `longshore image list` shows it."""
        return cls(image_id=text('image_id', image_id, empty=False))

    def add_python_version(self, python_version: str) -> 'Image':
        """Another version of Python than the one given at first."""
        self.python_version = _python_version(python_version)
        return self

    def add_python_packages(self, packages: Union[Sequence[str], str]) -> 'Image':
        """More packages, or the path of a requirements file."""
        return self._more_packages('pip', _packages(packages, 'packages'))

    def _more_packages(self, kind: str, names: Sequence[str]) -> 'Image':
        """The packages of one call are a layer of their own: a change of them installs no others again."""
        self._layers += 1
        self.added += [{'type': kind, 'command': name, 'layer': self._layers} for name in names]
        return self

    def pip_install(self, *packages: str) -> 'Image':
        """More packages, each an argument."""
        for package in packages:
            if isinstance(package, (list, tuple)):
                raise DefinitionError('packages: give each as an argument, pip_install(%s), or a list to add_python_packages' % ', '.join(map(repr, package)))
        return self.add_python_packages(packages)

    def add_commands(self, commands: Sequence[str]) -> 'Image':
        """More shell commands, run while the image is built."""
        self.added += [{'type': 'shell', 'command': command} for command in texts('commands', commands)]
        return self

    def run_commands(self, *commands: str) -> 'Image':
        """More shell commands, each an argument."""
        return self.add_commands(commands)

    def apt_install(self, *packages: str) -> 'Image':
        """Debian packages, installed after the commands that were added before."""
        names = ' '.join(quote(name) for name in texts('packages', packages))
        return self.add_commands([_APT % names] if names else [])

    def add_local_path(self, pattern: str = '*') -> 'Image':
        """Nothing to do: all files beside the app file are in its container, but those of `.longshoreignore`."""
        text('pattern', pattern, empty=False)
        return self

    def add_local_dir(self, local_path: str, remote_path: Optional[str] = None, copy: bool = False) -> 'Image':
        """A directory beside the app file; at `remote_path` a link to it."""
        return self._linked(local_path, remote_path, copy)

    def add_local_file(self, local_path: str, remote_path: Optional[str] = None, copy: bool = False) -> 'Image':
        """A file beside the app file; at `remote_path` a link to it."""
        return self._linked(local_path, remote_path, copy)

    def _linked(self, local_path: str, remote_path: Optional[str], copy: bool) -> 'Image':
        if os.environ.get('CONTAINER_ID'):
            return self
        if copy:
            raise DefinitionError('copy: files are not copied into an image; from_dockerfile(…) has COPY')
        inside = os.path.relpath(text('local_path', local_path, empty=False))
        if inside == '..' or inside.startswith('../') or not os.path.exists(local_path):
            raise DefinitionError('local_path: %s is not beside the app file' % local_path)
        if not remote_path:
            return self
        source, link = os.path.normpath('/mnt/code/' + inside), remote_path.rstrip('/')
        folder = os.path.dirname(link) or '/'
        command = 'mkdir -p %s && ln -sfnT %s %s' % (quote(folder), quote(source), quote(link))
        return self.add_commands([command])

    def with_envs(self, env_vars: Union[Mapping[str, str], Sequence[str], str], clear: bool = False) -> 'Image':
        """Variables of the image, as a mapping or as `NAME=VALUE`. clear: without those from before."""
        self.env_vars = ([] if clear else self.env_vars) + _env_vars(env_vars)
        return self

    def env(self, env_vars: Mapping[str, str]) -> 'Image':
        """Variables of the image, by another name."""
        return self.with_envs(env_vars)

    def with_secrets(self, secrets: Sequence[str]) -> 'Image':
        """Refused: a build gets no secrets."""
        raise DefinitionError(
            'with_secrets: a build gets no secrets, because what a step reads can stay in the image; '
            'give secrets to the decorator, and read them in the handler or in on_start'
        )

    def build_with_gpu(self, gpu: Union[str, Sequence[str]]) -> 'Image':
        """Packages and commands have such a GPU while the image is built. Instructions of a Dockerfile have none."""
        self.gpu = gpu_names(gpu)
        return self

    def micromamba(self) -> 'Image':
        """Python and packages come from conda channels. python3 becomes python3.11."""
        version = self.python_version.replace('micromamba', 'python')
        self.python_version = _python_version(('python3.11' if version == 'python3' else version).replace('python', 'micromamba'))
        return self

    def add_micromamba_packages(self, packages: Union[Sequence[str], str], channels: Sequence[str] = ()) -> 'Image':
        """More packages of conda channels, or the path of a file with one on each line; channels beside the usual ones."""
        if not self.python_version.startswith('micromamba'):
            raise DefinitionError('add_micromamba_packages: call micromamba() of the image first')
        names = _packages(packages, 'packages') + ['-c ' + channel for channel in texts('channels', channels)]
        return self._more_packages('micromamba', names)

    def with_docker(self) -> 'Image':
        """Refused: a container has no engine of its own."""
        raise DefinitionError('with_docker: a container has no Docker Engine of its own')

    def exists(self) -> Any:
        """Refused: `longshore image list` shows the images that were built."""
        raise DefinitionError('exists: the module asks nothing about images; `longshore image list` does')

    def build(self, *, quiet: bool = False) -> Any:
        """Refused: `longshore image build` builds an image without a deployment."""
        raise DefinitionError('build: `longshore image build app.py` builds the image, and `longshore deploy` does where it is missing')

    def __copy__(self) -> 'Image':
        made = type(self).__new__(type(self))
        made.__dict__.update((name, list(value) if isinstance(value, list) else value) for name, value in vars(self).items())
        return made

    def described(self) -> Dict[str, Any]:
        described: Dict[str, Any] = {
            'pythonVersion': self.python_version,
            'pythonPackages': list(self.python_packages),
            'commands': list(self.commands),
            'baseImage': self.base_image,
        }
        more = {
            'buildSteps': self.added,
            'envVars': self.env_vars,
            'systemPackages': self.system_packages,
            'dockerfile': self.dockerfile,
            'dockerfilePath': self.dockerfile_path,
            'contextDir': self.context_dir,
            'gpu': self.gpu,
        }
        described.update({name: value for name, value in more.items() if value})
        # A handler keeps the image of its decoration, whatever is added for later ones.
        for name in ('buildSteps', 'envVars', 'systemPackages'):
            if name in described:
                described[name] = list(described[name])
        return described


class Warm:
    """
    Containers that run without work at certain times, for `QueueDepthAutoscaler(warm=[…])`.

        Warm('0 8 * * 1-5', min=3, until='18:00', timezone='Europe/Berlin')

    when: a cron expression, as `schedule`'s: from each of these times on,
    min: so many containers run,
    until: to this time of day.
    timezone: of both times, such as `'Europe/Berlin'`.

    Raises DefinitionError, which names the parameter.
    """

    def __init__(self, when: str, *, min: int = 1, until: str, timezone: str = 'UTC') -> None:
        self.when = text('when', when)
        self.min = whole('min', min, 1)
        self.until = text('until', until)
        if re.fullmatch('([01][0-9]|2[0-3]):[0-5][0-9]', self.until, re.ASCII) is None:
            raise DefinitionError("until: must be a time of day such as '18:00', not %r" % (until,))
        self.timezone = text('timezone', timezone)

    def described(self) -> Dict[str, Any]:
        return {'when': self.when, 'timezone': self.timezone, 'min': self.min, 'until': self.until}


class Flow:
    """
    Flow control of a task queue: how many of its tasks run at a time, how often they start, and in which order. Tasks
    that have to wait do so in the order in which they came, and no container starts for them.

        @task_queue(flow=Flow(concurrency=5, key='customer'))
        def bill(customer: str, month: str) -> None: ...

    concurrency: so many tasks of a key run at most, or are about to; None: any number.
    key: the parameter of the function whose value is the key, a text or a number; None: the call gives it
    (`with_options(key=…)`), and calls without one share a key.
    limits: limits that all task queues of the workspace share, by name, with the most tasks of each that run at a time:
    `{'openai': 10}`. Each task heeds the number of its own queue.
    throttle: tasks of a key start at this pace at most, evenly, and the others later: `'100/m'`, `'5/10s'`.
    rate: calls of a key are taken at this pace at most, and so many at once. Others are refused with 429 and a
    `Retry-After`. An endpoint may have it, too.
    on_excess: `'skip'`: calls beyond the rate are dropped instead, and `put` returns a task without an id.
    debounce: calls of a key are one task, which begins when so many seconds passed without a further one. The input of the
    last call counts, and `put` returns that task.
    debounce_max: seconds after the first of these calls in which the task begins in any case; None: there is no such time.
    singleton: a key has one open task. `'skip'`: `put` returns that one, and queues nothing. `'replace'`: the new task
    cancels it while it waits. One that runs goes on, and the new one begins after it.
    cancel_running: with `'replace'`, a task that runs is cancelled, too.
    fair_key: the parameter of the function by whose values tasks take turns, a text or a number; None: they begin in order.
    weights: turns of a value for one turn of others, `{'c-17': 3}`.
    priority: head start of a task in its queue, in seconds, from -3600 to 3600; a call may have its own
    (`with_options(priority=600)`). None: the queue has no priorities, and tasks are begun in the order in which they came.

    Raises DefinitionError, which names the parameter.
    """

    def __init__(
        self,
        concurrency: Optional[int] = None,
        key: Optional[str] = None,
        limits: Optional[Mapping[str, int]] = None,
        *,
        throttle: Optional[str] = None,
        rate: Optional[str] = None,
        on_excess: str = 'refuse',
        debounce: Optional[int] = None,
        debounce_max: Optional[int] = None,
        singleton: Optional[str] = None,
        cancel_running: bool = False,
        fair_key: Optional[str] = None,
        weights: Optional[Mapping[str, int]] = None,
        priority: Optional[int] = None,
    ) -> None:
        self.concurrency = None if concurrency is None else whole('concurrency', concurrency, 1)
        self.key = None if key is None else flow_key('key', key)
        self.limits: Dict[str, int] = {}
        if limits is not None:
            for name, most in dict(instance('limits', limits, Mapping)).items():
                self.limits[flow_key('limits', name)] = whole('limits[%r]' % name, most, 1)
        self.throttle = None if throttle is None else pace('throttle', throttle)
        self.rate = None if rate is None else pace('rate', rate)
        self.on_excess = one_of('on_excess', on_excess, ('refuse', 'skip'))
        self.priority = None if priority is None else head_start('priority', priority)
        self.debounce = None if debounce is None else whole('debounce', debounce, 1)
        self.debounce_max = None if debounce_max is None else whole('debounce_max', debounce_max, 1)
        self.singleton = None if singleton is None else one_of('singleton', singleton, ('skip', 'replace'))
        self.cancel_running = flag('cancel_running', cancel_running)
        self.fair_key = None if fair_key is None else flow_key('fair_key', fair_key)
        self.weights: Dict[str, int] = {}
        if weights is not None:
            for name, weight in dict(instance('weights', weights, Mapping)).items():
                self.weights[flow_key('weights', name)] = whole('weights[%r]' % name, weight, 1)
        keyed = any(one is not None for one in (self.concurrency, self.throttle, self.rate, self.debounce, self.singleton))
        if not keyed and not self.limits and self.priority is None and self.fair_key is None:
            raise DefinitionError('concurrency: must be given, or limits, throttle, rate, debounce, singleton, fair_key or priority')
        if not keyed and self.key is not None:
            raise DefinitionError('key: needs concurrency, throttle, rate, debounce or singleton')
        if self.debounce_max is not None and (self.debounce is None or self.debounce_max < self.debounce):
            raise DefinitionError('debounce_max: needs debounce, and is no shorter')
        if self.singleton is not None and self.debounce is not None:
            raise DefinitionError('singleton: not together with debounce')
        if self.cancel_running and self.singleton != 'replace':
            raise DefinitionError("cancel_running: needs singleton='replace'")
        if self.weights and self.fair_key is None:
            raise DefinitionError('weights: needs fair_key')
        if self.fair_key is not None and self.priority is not None:
            raise DefinitionError('fair_key: not together with priority')
        if self.on_excess == 'skip' and self.rate is None:
            raise DefinitionError('on_excess: needs rate')

    def described_for(self, function: Any) -> Dict[str, Any]:
        """The settings as the scheduler reads them. Raises DefinitionError when the function has no such parameter."""
        described: Dict[str, Any] = {} if self.concurrency is None else {'concurrency': self.concurrency}
        if self.limits:
            described['limits'] = self.limits
        more = {
            'throttle': self.throttle,
            'rate': self.rate,
            'onExcess': 'skip' if self.on_excess == 'skip' else None,
            'debounce': self.debounce,
            'debounceMax': self.debounce_max,
            'singleton': self.singleton,
            'cancelRunning': True if self.cancel_running else None,
            'weights': self.weights or None,
            'priority': self.priority,
        }
        described.update({name: value for name, value in more.items() if value is not None})
        for name, key, position in (('key', self.key, 'position'), ('fairKey', self.fair_key, 'fairPosition')):
            if key is not None:
                described[name] = key
                at = _position('fair_key' if name == 'fairKey' else name, key, function)
                if at is not None:
                    described[position] = at
        return described


def _position(name: str, key: str, function: Any) -> Optional[int]:
    """The place of a parameter of the function among its positional ones; None: it is given by its name alone."""
    import inspect  # not paid on a cold start

    parameters = list(inspect.signature(function).parameters.values())
    for at, parameter in enumerate(parameters):
        if parameter.name == key and parameter.kind != parameter.VAR_KEYWORD:
            return at if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) else None
    if not any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters):
        raise DefinitionError('flow.%s: %s has no parameter %s' % (name, getattr(function, '__name__', 'the function'), key))
    return None


class QueueDepthAutoscaler:
    """
    A container for every `tasks_per_container` tasks that wait or run, between two bounds.

    max_containers: so many at most.
    tasks_per_container: tasks for which there is one container.
    min_containers: so many run always.
    window_seconds: an idle container goes only when nothing needed it for so long; at most 3600.
    warm: `Warm`s: times at which more containers run without work. The largest number counts.
    scale_in_per_minute: so many containers at most end in a minute for want of work; 0: no bound; at most 1000.

    Raises DefinitionError, which names the parameter.
    """

    def __init__(
        self,
        max_containers: int = 1,
        tasks_per_container: int = 1,
        min_containers: int = 0,
        window_seconds: int = 0,
        warm: Sequence[Warm] = (),
        scale_in_per_minute: int = 0,
    ) -> None:
        self.warm = [instance('warm', one, Warm) for one in sequence('warm', warm)]
        self.min_containers = whole('min_containers', min_containers, 0)
        self.max_containers = whole('max_containers', max_containers, 1)
        self.tasks_per_container = whole('tasks_per_container', tasks_per_container, 1)
        self.window_seconds = whole('window_seconds', window_seconds, 0)
        if self.window_seconds > 3600:
            raise DefinitionError('window_seconds: must be 3600 or less, not %d' % window_seconds)
        self.scale_in_per_minute = whole('scale_in_per_minute', scale_in_per_minute, 0)
        if self.scale_in_per_minute > 1000:
            raise DefinitionError('scale_in_per_minute: must be 1000 or less, not %d' % scale_in_per_minute)
        if self.min_containers > self.max_containers:
            raise DefinitionError('min_containers: %d is more than max_containers (%d)' % (min_containers, max_containers))

    def described(self) -> Dict[str, Any]:
        described = {
            'type': 'queue_depth',
            'maxContainers': self.max_containers,
            'tasksPerContainer': self.tasks_per_container,
            'minContainers': self.min_containers,
        }
        if self.window_seconds > 0:
            described['windowSeconds'] = self.window_seconds
        if self.scale_in_per_minute > 0:
            described['scaleInPerMinute'] = self.scale_in_per_minute
        if self.warm:
            described['warm'] = [one.described() for one in self.warm]
        return described


class TaskPolicy:
    """
    Bounds of a handler's calls. 0 leaves each as the decorator has it.

    max_retries: as `retries` of the decorator.
    timeout: seconds that one try may take; -1: as long as it takes.
    ttl: seconds that a call may wait for a container; at most 86400.

    Raises DefinitionError, which names the parameter.
    """

    def __init__(self, max_retries: int = 0, timeout: int = 0, ttl: int = 0) -> None:
        self.max_retries = whole('max_retries', max_retries, 0)
        self.timeout = whole('timeout', timeout, -1)
        self.ttl = whole('ttl', ttl, 0)
        if self.ttl > 86_400:
            raise DefinitionError('ttl: must be 86400 seconds or less, not %d' % ttl)

    def described(self) -> Dict[str, Any]:
        return {'maxRetries': self.max_retries, 'timeout': self.timeout, 'ttl': self.ttl}


class Secret:
    """
    A secret of the workspace by its name, for `secrets=[…]`: `longshore secret set NAME` gives it a value. In a
    container that was given the secret, `value` reads it.
    """

    def __init__(self, name: str) -> None:
        self.name = text('name', name, empty=False)

    def __repr__(self) -> str:
        return 'Secret(%r)' % self.name

    @property
    def value(self) -> str:
        """The value, in a container whose handler names the secret. Raises KeyError elsewhere."""
        try:
            return os.environ[self.name]
        except KeyError:
            raise KeyError('secret %s is not here: name it in secrets=[…] of the handler' % self.name) from None


class Pool:
    """
    A pool of machines by its name, for `pool=…`, and models of GPUs, which count where `gpu` names none. Machines are
    not rented for a pool, so the other parameters are refused.
    """

    def __init__(
        self,
        name: Optional[str] = None,
        gpu: Union[str, Sequence[str], None] = None,
        nodes: Optional[int] = None,
        ttl: Optional[str] = None,
        max_spend: Optional[float] = None,
        providers: Optional[Sequence[str]] = None,
        regions: Optional[Sequence[str]] = None,
        min_reliability: Optional[float] = None,
    ) -> None:
        self.name = text('name', name or '')
        self.gpu = gpu_names(gpu)
        rented = {'nodes': nodes, 'ttl': ttl, 'max_spend': max_spend, 'providers': providers, 'regions': regions}
        for parameter, value in dict(rented, min_reliability=min_reliability).items():
            if value:
                raise DefinitionError('%s: machines are not rented for a pool; add them with `longshore machine create`' % parameter)


class Placement:
    """
    What labels of machines decide, for `placement=…`. An operator gives them with `longshore machine label ID zone=a`.

        Placement(require={'zone': ['a', 'b']}, prefer={'disk': 'nvme'}, spread='zone')

    require: labels that a machine must have, each with one of these values.
    forbid: labels that it must not have with one of these values.
    prefer: machines with these labels come first, where several could take a container.
    spread: a label over whose values containers of a deployment are spread, as far as there is room.

    Raises DefinitionError, which names the parameter.
    """

    def __init__(
        self,
        require: Optional[Mapping[str, Union[str, Sequence[str]]]] = None,
        forbid: Optional[Mapping[str, Union[str, Sequence[str]]]] = None,
        prefer: Optional[Mapping[str, Union[str, Sequence[str]]]] = None,
        spread: str = '',
    ) -> None:
        self.require = label_values('require', require, 8)
        self.forbid = label_values('forbid', forbid, 8)
        self.prefer = label_values('prefer', prefer, 4)
        self.spread = label_key('spread', spread) if spread else ''

    def described(self) -> Dict[str, Any]:
        named = {'require': self.require, 'forbid': self.forbid, 'prefer': self.prefer, 'spread': self.spread}
        return {name: value for name, value in named.items() if value}


class Volume:
    """
    A directory that containers share and that outlives them, created at the first deployment. A relative `mount_path`
    appears in the working directory and at `/volumes/{mount_path}`; an absolute one at that path and below `/volumes`.

        weights = Volume(name='models', mount_path='models')

    name: letters, digits, dot, dash and underscore, at most 63.
    mount_path: where it appears.
    driver: `'cache'`: a directory of each machine's own, for files that can be had again; `fill_once` fills it. Others
    are `'local'`, `'shared'`, `'nfs'` and `'s3'`. None: the driver that it has, or the installation's for a new one.

    Raises DefinitionError, which names the parameter.
    """

    def __init__(self, name: str, mount_path: str, driver: Optional[str] = None) -> None:
        self.name = text('name', name, empty=False)
        if _VOLUME_NAME.fullmatch(name) is None:
            raise DefinitionError('name: a volume is named by letters, digits, dot, dash and underscore, at most 63, not %r' % name)
        self.mount_path = text('mount_path', mount_path, empty=False)
        self.driver = None if driver is None else one_of('driver', driver, _VOLUME_DRIVERS)

    def described(self) -> Dict[str, Any]:
        driver = {} if self.driver is None else {'driver': self.driver}
        return {'name': self.name, 'mountPath': self.mount_path, **driver}


def _python_version(value: Any) -> str:
    match = _PYTHON_VERSION.fullmatch(str(value)) if isinstance(value, str) else None
    minor = match.group(3) if match is not None else None
    newest = 12 if match is not None and match.group(1) == 'micromamba' else 14
    if match is None or (minor is not None and not 8 <= int(minor) <= newest):
        raise DefinitionError(
            'python_version: must be python3, python3.8 to python3.14 or micromamba3.8 to micromamba3.12, not %r' % (value,)
        )
    return match.group(0) if match.group(1) else 'python' + match.group(0)


def _up_to(dockerfile: str, target: str) -> str:
    """The instructions up to the end of a stage; '' is the last one."""
    lines = dockerfile.splitlines(keepends=True)
    stages = [at for at, line in enumerate(lines) if _FROM.match(line)]
    for stage, at in enumerate(stages):
        named = _FROM.match(lines[at])
        if target and (str(stage) == target or (named and (named.group(1) or '').lower() == target.lower())):
            return ''.join(lines[: (stages + [len(lines)])[stage + 1]])
    if target:
        raise DefinitionError('target: the Dockerfile has no stage %r' % target)
    return dockerfile


def _constant(text: str) -> Callable[[Any], str]:
    """A replacement that is taken as it is, with its backslashes."""
    return lambda _: text


def _with_arguments(dockerfile: str, arguments: Mapping[str, str]) -> str:
    """ARG instructions with these values in the place of their own."""
    for name, value in arguments.items():
        if re.search(r'[\r\n]', str(value)):
            raise DefinitionError('build_args: the value of %s has several lines' % name)
        line = 'ARG %s="%s"' % (name, re.sub(r'[\\"$]', r'\\\g<0>', str(value)))
        dockerfile, found = re.subn(r'(?im)^[ \t]*ARG[ \t]+%s(?:=.*)?$' % re.escape(name), _constant(line), dockerfile)
        if not found:
            raise DefinitionError('build_args: the Dockerfile has no line ARG %s' % name)
    return dockerfile


def _env_vars(value: Any) -> List[str]:
    return variables([value] if isinstance(value, str) else value, 'env_vars')


def _built_image(value: str) -> str:
    """The reference of an image that was built, by its id."""
    return 'longshore.internal/' + value if _IMAGE_ID.fullmatch(value) is not None else value


def _packages(value: Any, parameter: str = 'python_packages') -> List[str]:
    if not isinstance(value, str):
        value = texts(parameter, value)
    return [] if os.environ.get('CONTAINER_ID') else requirements(value, parameter)
