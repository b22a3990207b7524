"""Layers: PFLSTM, PFGRU, their cells and states; experiment networks."""
