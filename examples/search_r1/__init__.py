"""Search-R1: an agent learns to answer questions by searching a corpus, several turns long."""
