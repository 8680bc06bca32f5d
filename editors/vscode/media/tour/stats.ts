// Step 1: put the cursor on `value`, press Ctrl+. and choose "thinklsp: fix".
export function mean(values: number[]): number {
    return total(values) / value.length;
}

// Step 2: put the cursor on the next line, press Ctrl+. and choose "thinklsp: edit as the comment says".

// Rename total to sum in every file. AI!
export function total(values: number[]): number {
    return values.reduce((sum, value) => sum + value, 0);
}

// Step 5: choose "edit as the comment says" on the next line, then change the number below while thinklsp works.

// Make the limit configurable. AI!
export const limit = 100;
