// The least that a container may ask for: an agent starts none with less, so the scheduler refuses it at once.

export const LEAST_MEMORY_MIB = 16;
export const LEAST_CPU_MILLICORES = 10;
