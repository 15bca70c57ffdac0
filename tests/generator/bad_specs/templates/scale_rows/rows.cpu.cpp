// Stands in for a kernel: the bad specs are refused before any template is rendered.
