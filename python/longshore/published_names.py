"""The names of the published packages with their types, for type checkers: `beam` and `beta9` have them. At run time nothing
imports this module; `published` has the table then."""

from longshore import (
    Asgi as Asgi,
    Client as Client,
    CloudBucket as CloudBucket,
    CloudBucketConfig as CloudBucketConfig,
    Context as Context,
    DefinitionError as DefinitionError,
    Deployment as Deployment,
    Endpoint as Endpoint,
    Function as Function,
    GatewayError as GatewayError,
    GpuType as GpuType,
    Image as Image,
    LLM as LLM,
    Map as Map,
    NotDeployedError as NotDeployedError,
    NotServedError as NotServedError,
    Output as Output,
    OutputError as OutputError,
    PodInstance as PodInstance,
    Pool as Pool,
    PythonVersion as PythonVersion,
    Queue as Queue,
    QueueDepthAutoscaler as QueueDepthAutoscaler,
    ReadinessProbe as ReadinessProbe,
    Realtime as Realtime,
    SandboxConnectionError as SandboxConnectionError,
    SandboxFileSystemError as SandboxFileSystemError,
    SandboxInstance as SandboxInstance,
    SandboxProcess as SandboxProcess,
    SandboxProcessError as SandboxProcessError,
    Schedule as Schedule,
    Secret as Secret,
    Signal as Signal,
    Task as Task,
    TaskError as TaskError,
    TaskPolicy as TaskPolicy,
    TaskQueue as TaskQueue,
    TokenPressureAutoscaler as TokenPressureAutoscaler,
    Volume as Volume,
    context as context,
    env as env,
    experimental as experimental,
    fill_once as fill_once,
    get_task as get_task,
    integrations as integrations,
    schema as schema,
)
from longshore.errors import (
    ImageBuildError as ImageBuildError,
)
from longshore.processes import (
    SandboxProcessManager as SandboxProcessManager,
    SandboxProcessResponse as SandboxProcessResponse,
    SandboxProcessStream as SandboxProcessStream,
)
from longshore.published_decorators import (
    asgi as asgi,
    endpoint as endpoint,
    function as function,
    realtime as realtime,
    schedule as schedule,
    task_queue as task_queue,
)
from longshore.published_pods import (
    Pod as Pod,
    Sandbox as Sandbox,
)
from longshore.results import (
    TaskError as RemoteExecutionError,
)
from longshore.sandbox_files import (
    SandboxFileInfo as SandboxFileInfo,
    SandboxFilePosition as SandboxFilePosition,
    SandboxFileSearchMatch as SandboxFileSearchMatch,
    SandboxFileSearchRange as SandboxFileSearchRange,
    SandboxFileSearchResult as SandboxFileSearchResult,
    SandboxFileSystem as SandboxFileSystem,
)
