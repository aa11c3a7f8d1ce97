"""ReTool: an agent learns when and how to reason with a code interpreter."""
