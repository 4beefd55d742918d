// Light, dark, or as the system says. The choice stays in this browser.
import { signal } from '@preact/signals';

const KEY = 'longshore-console-colours';
const CHOICES = ['system', 'light', 'dark'] as const;
type Choice = (typeof CHOICES)[number];

const isChoice = (text: string | null): text is Choice => CHOICES.some((one) => one === text);
const kept = localStorage.getItem(KEY);

export const theme = signal<Choice>(isChoice(kept) ? kept : 'system');

const apply = (): void => {
  document.documentElement.dataset['colours'] = theme.value;
};
apply();

export function nextTheme(): void {
  theme.value = CHOICES[(CHOICES.indexOf(theme.value) + 1) % CHOICES.length] ?? 'system';
  localStorage.setItem(KEY, theme.value);
  apply();
}
