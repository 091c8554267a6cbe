"""Who am I among how many: `resolve` derives it from what the resource manager exports."""
