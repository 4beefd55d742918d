// Choices by their names in the address. Pure.

/** Whether there is a choice of that name. */
export const isKeyOf = <Choices extends object>(
  choices: Choices,
  name: string | undefined,
): name is keyof Choices & string => name !== undefined && Object.hasOwn(choices, name);
