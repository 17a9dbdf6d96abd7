"Verbs of the command line for molecules, which plug in through the entry points `loflexmdm.verbs`."
