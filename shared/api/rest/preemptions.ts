import { Type } from 'typebox';
import type { Static } from 'typebox';

export const PreemptContainer = Type.Object({
  end_calls: Type.Boolean({
    default: false,
    description: 'whether the container is stopped after the notice, with the calls that it has still',
  }),
});

export const ContainerPreemption = Type.Object({
  container_id: Type.String(),
  workspace_id: Type.String(),
  notice_seconds: Type.Number({ description: 'time for tasks of queues; then they are given back' }),
  ends_calls: Type.Boolean(),
});
export type ContainerPreemption = Static<typeof ContainerPreemption>;
