// Messages that are no service's own.
import type { Service } from './service.ts';

/** Messages that those of several services have in them. */
export const TYPES: Service = {
  pack: 'types',
  messages: {
    CheckpointTrigger: `
      type 1; http_path 2; http_port 3 uint32; timeout_seconds 4 uint32; interval_seconds 5 uint32`,
    Container: `
      container_id 1; stub_id 2; status 3; scheduled_at 4 time; started_at 5 time; workspace_id 6; worker_id 7;
      machine_id 8; deployment_id 9`,
    FileSearchMatch: 'range 1 FileSearchRange; content 2',
    FileSearchPosition: 'line 1 int32; column 2 int32',
    FileSearchRange: 'start 1 FileSearchPosition; end 2 FileSearchPosition',
    FileSearchResult: 'path 1; matches 2 FileSearchMatch[]',
    MountPointConfig: `
      bucket_name 1; access_key 2; secret_key 3; endpoint_url 4; region 5; read_only 6 bool;
      force_path_style 7 bool`,
    ProcessInfo: 'running 1 bool; pid 2 int32; cmd 3; cwd 4; env 5 string[]; exit_code 6 int32',
    Worker: `
      id 1; status 2; total_cpu 3 int64; total_memory 4 int64; total_gpu_count 5 uint32; free_cpu 6 int64;
      free_memory 7 int64; free_gpu_count 8 uint32; gpu 9; pool_name 10; machine_id 11;
      resource_version 12 int64; requires_pool_selector 13 bool; priority 14 int32; preemptable 15 bool;
      build_version 16; active_containers 17 Container[]; runtime 18; pool_selector 19; cordon_requested 20 bool;
      rollout_generation 21; rollout_build_version 22; worker_image_override 23; evictable_cpu 24 int64;
      evictable_memory 25 int64; evictable_gpu_count 26 uint32`,
    WorkerPoolState: `
      status 1; scheduling_latency 2 int64; free_gpu 3 uint32; free_cpu 4 int64; free_memory 5 int64;
      pending_workers 6 int64; available_workers 7 int64; pending_containers 8 int64; running_containers 9 int64;
      registered_machines 10 int64; pending_machines 11 int64; ready_machines 12 int64`,
  },
};

/** The package of its calls is `grpc.health.v1`, and the status a number of an enumeration. */
export const HEALTH: Service = {
  pack: 'health',
  messages: {
    CheckRequest: 'service 1',
    CheckResponse: 'status 1 uint32',
  },
};
